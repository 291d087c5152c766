// Includes all layers of a decoder. Each declares its parameters in a Unit and computes with the functions of autograd.
#pragma once

#include "nought/nn/attention.h"
#include "nought/nn/latent.h"
#include "nought/nn/linear.h"
#include "nought/nn/mlp.h"
#include "nought/nn/moe.h"
#include "nought/nn/norm.h"
#include "nought/nn/rope.h"
