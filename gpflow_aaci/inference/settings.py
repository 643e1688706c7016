"""The rules of thumb of ``fit`` and ``fit_collapsed``, each with the run that measured it."""

from typing import NamedTuple


class FitSettings(NamedTuple):
    """
    The numbers that decide how a fit goes.

    The last word of each comment names the file in ``configs/`` of the run that measured it.
    """

    # ---- q at fixed hyperparameters ----
    inner_tolerance: float = 1e-6  # nats a datum that one more step on q must gain; small_data
    inner_share: float = 1e-3  # of the fit's tolerance, where it is less than that; settings

    # ---- subsets of the rows ----
    first_subset: int = 1_000  # rows; time_to_nll
    growth: int = 4  # how much larger each further subset is; time_to_nll
    rows_per_coordinate: int = 100  # of the first subset, at least; fig3_covtype
    rows_per_effect: int = 4  # of the same, beside effects of groups, at least; groups
    subset_share: float = 0.1  # of what a subset's optimum misses, still expected there; settings
    float32_rows: int = 10_000  # where products of size N·M² begin to be in float32; settings

    # ---- as many rows as are enough ----
    most_of_all: int = 100_000  # rows up to which all are used unless told; settings
    largest_subset: int = 300_000  # rows that are copied into memory; settings
    unseen_rows: int = 20_000  # on which the worth of more rows is judged, at most; settings
    worth: float = 1e-3  # nats a datum that more rows or iterations must be worth; settings
    level_iterations: int = 4  # on the first subset that gain less for others and end it; settings
    far_below: float = 50.0  # times ``worth`` that others must have lost by then; settings_more
    level_rows: int = 8_000  # on which this is judged, at most; settings_more

    # ---- the end ----
    shortest_lengthscale: float = 1e-3  # of √D·sd(X), to which one may fall; settings
    part_of_gap: float = 20.0  # of the least distance in its column, likewise; settings
    largest_df: float = 1e3  # of Student-t noise, at first; settings
    roughness: float = 1e-4  # nats a datum that rounding of K_ZZ may make, about; settings
    least_roughness: float = 1e-6  # the same, where rounding exceeds the jitter; settings_more
    loosened: float = 100.0  # by how much it may be more, at the end on few rows; settings
    tolerance: float = 1e-3  # nats that are still to be expected; starts
    tolerance_per_datum: float = 1e-5  # the same a datum, where it is more; time_to_nll
    margin: float = 10.0  # by which the expected gain must be below the tolerance; starts
    far_margin: float = 1e4  # the same for a curvature of many coordinates; settings
    last_iterations: int = 30  # whose gain is that far below it, where nothing is measured; starts
    most_iterations: int = 1_000  # on the same rows; settings

    # ---- the curvature in the hyperparameters ----
    curvature_rows: int = 4_000  # on which it is measured, at most; time_to_nll
    curvature_work: float = 2e7  # coordinates · rows · M · L up to which it is; fig3_covtype
    most_coordinates: int = 64  # beyond which it is estimated from the steps alone; starts
    many_iterations: float = 0.5  # for each coordinate, after which it is for up to 200; settings
    dear_row_work: float = 1_000.0  # what a row_cost of one counts in that; settings
    difference: float = 0.02  # length of the differences, in logarithms; starts
    least_between: int = 10  # iterations between two measurements where none is due; small_data
    slow_iterations: int = 3  # that are slow together; time_to_nll
    slow_gain: float = 3e-4  # nats a datum below which they are; time_to_nll

    # ---- what is tried besides the climb ----
    unit_factor: float = 100.0  # between two units of y that are tried; settings
    farthest_unit: float = 50.0  # logarithm of the last unit that is tried; settings
    no_signal: float = 10.0  # noise over signal beyond which f explains next to nothing; small_data
    little_information: float = 2.0  # nats of KL[q ‖ p] below which f explains little; starts
    short_lengthscales: float = 0.5  # share of f's variance that Z or other rows leave; starts
    long_lengthscales: float = 2.0  # over √D·sd(X), beyond which f is nearly a polynomial; large_n
    lengthscale_factors: tuple[float, ...] = (1.0, 0.25)  # of √D·sd(X) that are tried; starts

    # ---- minibatches ----
    most_cost: float = 30_000.0  # rows times the likelihood's row_cost for passes; classes
    dear_batch: int = 256  # rows in a batch, where rows are expensive; classes
    dear_closed_form_steps: int = 1_000  # where rows are expensive; classes
    dear_standard_steps: int = 500  # where rows are expensive; classes
    standard_learning_rate: float = 0.03  # of Adam on GPflow's ELBO, at first; classes
    endless_standard_steps: int = 2_000  # of endless data; settings_more
    most_steps: int = 20_000  # of a part that waits for its end; settings_more
    evaluate_every: int = 100  # steps; settings_more
    patience: int = 20  # evaluations without a gain; settings_more
    patience_gain: float = 1e-4  # nats a datum that counts as one; settings_more

    # ---- checkpoints ----
    checkpoint_iterations: int = 10  # between two checkpoints; streaming

    @property
    def drawn_rows(self) -> int:
        """How many rows the first pass over a stream puts aside."""
        return self.largest_subset + self.unseen_rows


SETTINGS = FitSettings()
