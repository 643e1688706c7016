"""
The exact posterior: ``conditionals`` of f or u given ω, ``gibbs`` sweeps over both,
``hyperparameters`` joins those that are trainable, Z among them, by ``moves`` of each. ``whitened``
latents are what ``elliptical`` slices and HMC move, with an augmentation or without. ``chains``
runs them, ``posterior`` hands them to ArviZ.
"""
