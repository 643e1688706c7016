"""
What surrounds the mathematics: compiling, checkpoints, and several devices and processes.

``structure`` says when two models have the same graph, ``compiled`` shares their functions, and
``graphs`` frees graphs. ``workers`` sums over processes, and ``agreement`` checks that these make
the same calls; ``mirrored`` handles variables on several devices. ``checkpoints`` stores runs, and
``identity`` recognises their data.
"""
