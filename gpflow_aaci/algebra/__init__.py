"""
The pass over the data, as pure functions of tensors that use likelihoods but no models.

``projection`` computes f at some inputs from q(v); ``terms`` defines what a datum adds to a bound;
``statistics`` sums these contributions; ``gaussian`` takes steps on q(v). Of effects of groups most
entries are zero: ``one_hot`` has those of K_ZX that are not, and ``arrow`` takes the steps.

Shapes in the whole package: [N] data, [M] inducing variables, [L] latent GPs, [P] columns of Y.
A tensor that the latent GPs may share, such as K_ZZ, is [broadcast L, M, M].
"""
