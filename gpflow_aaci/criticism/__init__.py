"""
Is the model any good? How well it predicts data that it has not seen, or that are left out.

``loo``: leave-one-out densities in closed form. ``elpd``: the object that ArviZ has for them.
``calibration``: where in its predictive distribution every y falls.
"""
