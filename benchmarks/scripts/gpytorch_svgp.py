"""GPyTorch's SVGP, trained by Adam on batches as in its documentation."""

import sys
import time
from pathlib import Path

import gpytorch
import numpy as np
import torch
from scores import held_out, peak_megabytes, write

BATCH = 1_024  # of its documentation


class SVGP(gpytorch.models.ApproximateGP):
    """The model of its documentation, with a Matérn kernel of a lengthscale a column."""

    def __init__(self, Z: torch.Tensor, smoothness: float) -> None:
        """
        :param Z: where inducing points start, [M, D].
        """
        of_u = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, Z, of_u, learn_inducing_locations=True)
        )
        self.mean_module = gpytorch.means.ConstantMean()
        matern = gpytorch.kernels.MaternKernel(nu=smoothness, ard_num_dims=Z.shape[1])
        matern.lengthscale = np.sqrt(Z.shape[1])
        self.covar_module = gpytorch.kernels.ScaleKernel(matern)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior of f at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    torch.set_num_threads(1)
    torch.manual_seed(int(arrays["seed"]))
    X, y, X_test, Z = (
        torch.tensor(arrays[name], dtype=torch.float32) for name in ("X", "y", "X_test", "Z")
    )
    noise = str(arrays["noise"])
    began = time.process_time()
    of_y = gpytorch.likelihoods
    likelihood = of_y.BernoulliLikelihood() if noise == "probit" else of_y.StudentTLikelihood()
    model = SVGP(Z, float(arrays["smoothness"]))
    loss = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimizer = torch.optim.Adam([*loss.parameters()], lr=float(arrays["learning_rate"]))
    model.train()
    likelihood.train()
    steps = 0
    while steps < int(arrays["steps"]):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            (-loss(model(X[rows]), y[rows])).backward()
            optimizer.step()
            steps += 1
    fitted = time.process_time()
    model.eval()
    with torch.no_grad():
        of_f = model(X_test)
        Fmu, Fvar = of_f.mean.double().numpy(), of_f.variance.double().numpy()
    predicted = time.process_time()
    parameters = {}
    if noise == "Student-t":
        scale = float(likelihood.noise) ** 0.5
        parameters = {"df": float(likelihood.deg_free), "scale": scale}
    scores = held_out(arrays["y_test"], Fmu, Fvar, noise, **parameters)
    scores |= {"cpu_seconds": fitted - began, "cpu_seconds_predicting": predicted - fitted}
    write(result, scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
