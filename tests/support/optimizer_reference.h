// The optimizers once more, from their papers, in f64 on plain vectors: what ShardedOptimizer is tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace nought::test {

using Numbers = std::vector<double>;

/// Constants of one run and one parameter.
struct Reference {
  double lr = 1e-2, decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int step = 0;
  Numbers m = {}, v = {};

  void begin(size_t n) {
    ++step;
    m.resize(n), v.resize(n);
  }

  void adam(Numbers& p, const Numbers& gradient, bool decoupled) {
    begin(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] + (decoupled ? 0 : decay * p[i]);
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      if (decoupled) p[i] -= lr * decay * p[i];
      p[i] -= lr * (m[i] / (1 - std::pow(beta1, step))) / (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + eps);
    }
  }

  void sgd(Numbers& p, const Numbers& gradient, double momentum, double dampening, bool nesterov) {
    begin(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i] + decay * p[i];
      if (momentum != 0) {
        m[i] = step == 1 ? g : momentum * m[i] + (1 - dampening) * g;
        g = nesterov ? g + momentum * m[i] : m[i];
      }
      p[i] -= lr * g;
    }
  }

  void adagrad(Numbers& p, const Numbers& gradient) {
    begin(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] + decay * p[i];
      v[i] += g * g;
      p[i] -= lr * g / (std::sqrt(v[i]) + eps);
    }
  }

  void rmsprop(Numbers& p, const Numbers& gradient, double alpha) {
    begin(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] + decay * p[i];
      v[i] = alpha * v[i] + (1 - alpha) * g * g;
      p[i] -= lr * g / (std::sqrt(v[i]) + eps);
    }
  }

  void lion(Numbers& p, const Numbers& gradient) {
    begin(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double c = beta1 * m[i] + (1 - beta1) * gradient[i];
      p[i] -= lr * ((c > 0) - (c < 0) + decay * p[i]);
      m[i] = beta2 * m[i] + (1 - beta2) * gradient[i];
    }
  }

  void lamb(Numbers& p, const Numbers& gradient, double min_coeff, double max_coeff, bool bias_correction) {
    begin(p.size());
    const double bias1 = bias_correction ? 1 - std::pow(beta1, step) : 1;
    const double bias2 = bias_correction ? 1 - std::pow(beta2, step) : 1;
    Numbers u(p.size());
    double p_norm = 0, u_norm = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
      v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
      u[i] = m[i] / bias1 / (std::sqrt(v[i] / bias2) + eps) + decay * p[i];
      p_norm += p[i] * p[i], u_norm += u[i] * u[i];
    }
    const double ratio = p_norm > 0 && u_norm > 0 ? std::clamp(std::sqrt(p_norm / u_norm), min_coeff, max_coeff) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * ratio * u[i];
  }

  /// [rows, columns] matrices; Newton-Schulz as in the post, which transposes tall ones.
  void muon(Numbers& p, const Numbers& gradient, size_t rows, size_t columns, double momentum) {
    begin(p.size());
    Numbers x(p.size());
    double squares = 0;
    const bool tall = rows > columns;
    const size_t r = std::min(rows, columns), c = std::max(rows, columns);
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] += (1 - momentum) * (gradient[i] - m[i]);
      const double direction = gradient[i] + momentum * (m[i] - gradient[i]);
      x[tall ? (i % columns) * rows + i / columns : i] = direction;
      squares += direction * direction;
    }
    for (double& value : x) value /= std::sqrt(squares) + 1e-7;
    for (int iteration = 0; iteration < 5; ++iteration) {
      Numbers a(r * r), b(r * r), y(x.size());
      for (size_t i = 0; i < r; ++i)
        for (size_t j = 0; j < r; ++j)
          for (size_t k = 0; k < c; ++k) a[i * r + j] += x[i * c + k] * x[j * c + k];
      for (size_t i = 0; i < r; ++i)
        for (size_t j = 0; j < r; ++j) {
          for (size_t k = 0; k < r; ++k) b[i * r + j] += 2.0315 * a[i * r + k] * a[k * r + j];
          b[i * r + j] -= 4.7750 * a[i * r + j];
        }
      for (size_t i = 0; i < r; ++i)
        for (size_t k = 0; k < c; ++k) {
          y[i * c + k] = 3.4445 * x[i * c + k];
          for (size_t j = 0; j < r; ++j) y[i * c + k] += b[i * r + j] * x[j * c + k];
        }
      x = y;
    }
    const double stretch = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (size_t i = 0; i < p.size(); ++i)
      p[i] -= lr * (decay * p[i] + stretch * x[tall ? (i % columns) * rows + i / columns : i]);
  }
};

}  // namespace nought::test
