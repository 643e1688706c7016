"""
The exact posterior: ``conditionals`` of f or u given ω, ``gibbs`` sweeps over both,
``hyperparameters`` joins those that are trainable, Z among them, by ``moves`` of each, from
``starts`` that are dispersed. ``whitened`` latents are what ``elliptical`` slices and HMC move,
with an augmentation or without; ``sghmc`` does by minibatches, in ``stochastic`` chains. ``chains``
runs the others, ``posterior`` hands them to ArviZ.
"""
