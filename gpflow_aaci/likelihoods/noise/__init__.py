"""Laws of an additive noise: y = f + noise, with h² a squared residual."""
