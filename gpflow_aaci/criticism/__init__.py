"""
Is the model any good? What it says of data that it has not seen, or is made to forget.

``loo``: leave-one-out densities in closed form; ``elpd``: how ArviZ has them. ``calibration``:
where in its predictive distribution every y falls.
"""
