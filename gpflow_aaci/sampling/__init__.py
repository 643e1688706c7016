"""
The exact posterior: ``gibbs`` sweeps over f or u and ω, ``hyperparameters`` joins those that are
trainable, ``posterior`` runs chains and hands them to ArviZ.
"""
