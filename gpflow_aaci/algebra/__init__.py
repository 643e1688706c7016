"""
The pass over the data, as pure functions of tensors that use likelihoods but no models.

``projection`` says what f is at some inputs given q(v), ``terms`` what a datum adds to a bound,
``statistics`` sums these contributions, ``gaussian`` moves q(v).

Shapes in the whole package: [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
What the latent GPs may share, such as K_ZZ, is [broadcast L, M, M].
"""
