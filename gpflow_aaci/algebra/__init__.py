"""
The pass over the data, as pure functions of tensors that use likelihoods but no models.

``projection`` computes f at some inputs from q(v); ``terms`` defines what a datum adds to a bound;
``statistics`` sums these contributions; ``gaussian`` takes steps on q(v).

Shapes in the whole package: [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
A tensor that the latent GPs may share, such as K_ZZ, is [broadcast L, M, M].
"""
