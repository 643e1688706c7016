"""
The exact posterior: ``conditionals`` of f or u given ω, ``gibbs`` sweeps over both,
``hyperparameters`` joins those that are trainable, ``posterior`` runs chains for ArviZ.
"""
