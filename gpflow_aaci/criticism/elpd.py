"""Leave-one-out densities as ArviZ's object; imported only when needed, as ArviZ is slow."""

import arviz
import numpy as np
import xarray
from gpflow.base import AnyNDArray


class ClosedFormELPD(arviz.ELPDData):
    """An ``arviz.ELPDData`` that prints leverages instead of k̂, as there are no draws."""

    def __str__(self) -> str:
        source = "from the nearest rows of each row without itself"
        if self.bound is not None:
            source = f"from the sites of q, stationary in the {self.bound} bound"
        lines = [
            f"Computed in closed form {source}, and {self.n_data_points} observations.",
            "",
            f"{'':8} {'Estimate':>10} {'SE':>8}",
            f"elpd_loo {self.elpd_loo:10.2f} {self.se:8.2f}",
            f"p_loo    {self.p_loo:10.2f} {'-':>8}",
            "------",
        ]
        if self.bound is not None:
            leverage = self.leverage.values
            lines.append(
                f"Leverage of a datum on its own f: median {np.median(leverage):.2f}, largest "
                f"{np.max(leverage):.2f}."
            )
        if self.warning:
            lines.append("There has been a warning: please check the results.")
        return "\n".join(lines)

    def copy(self, deep: bool = True) -> "ClosedFormELPD":
        return ClosedFormELPD(super().copy(deep))


def as_elpd(
    loo_i: AnyNDArray,
    log_density_i: AnyNDArray,
    leverage: AnyNDArray | None,
    bound: str | None,
    warning: bool,
) -> ClosedFormELPD:
    """
    :param loo_i: log p(y_i | y without i) [N].
    :param log_density_i: log p(y_i|q) [N].
    :param leverage: [N]; None for a model without q.
    :param bound: the bound at which q is stationary; None for a model without q.
    """
    num_data, elpd = len(loo_i), loo_i.sum()
    fields = {
        "elpd_loo": elpd,
        "se": np.sqrt(num_data * np.var(loo_i)),
        "p_loo": log_density_i.sum() - elpd,
        "n_samples": 0,
        "n_data_points": num_data,
        "warning": warning,
        "loo_i": xarray.DataArray(loo_i, dims="data", name="loo_i"),
        "leverage": None
        if leverage is None
        else xarray.DataArray(leverage, dims="data", name="leverage"),
        "scale": "log",
        "bound": bound,
    }
    return ClosedFormELPD(data=list(fields.values()), index=list(fields))
