"""
The pass over the data, as pure functions of tensors; they know likelihoods and no models.

``projection`` says what f is at some inputs given q(v), ``terms`` what a datum is worth there,
``statistics`` sums it up, ``gaussian`` moves q(v).

Shapes, here and everywhere: [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
What the latent GPs may share, such as K_ZZ, is [broadcast L, M, M].
"""
