#!/usr/bin/env bash
# The compiler of torch.compile on a capped CPU: g++ with -march=$PEER_MARCH where -march=native was asked for.
exec g++ "${@/-march=native/-march=$PEER_MARCH}"
