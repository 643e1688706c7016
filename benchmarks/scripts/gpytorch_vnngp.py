"""GPyTorch's VNNGP: every row is an inducing point, whose prior is that of nearest neighbours."""

import sys
import time
from pathlib import Path

import gpytorch
import numpy as np
import torch
from scores import peak_megabytes, write

NEIGHBORS, BATCH, LEARNING_RATE = 32, 256, 0.01
SECONDS = 480.0  # of the fit; the rest of the ten minutes is left for the predictions
MOST_EPOCHS = 300
DRAWS = 1_000  # of y, for intervals


class VNNGP(gpytorch.models.ApproximateGP):
    """The model of its documentation, with a Matérn kernel of a lengthscale a column."""

    def __init__(self, X: torch.Tensor, smoothness: float, likelihood: torch.nn.Module) -> None:
        """
        :param X: the rows, [N, D].
        """
        rows, columns = X.shape
        of_u = gpytorch.variational.MeanFieldVariationalDistribution(rows)
        strategy = gpytorch.variational.nearest_neighbor_variational_strategy
        super().__init__(
            strategy.NNVariationalStrategy(
                self, X, of_u, k=NEIGHBORS, training_batch_size=min(BATCH, rows)
            )
        )
        self.likelihood = likelihood
        self.mean_module = gpytorch.means.ZeroMean()
        matern = gpytorch.kernels.MaternKernel(nu=smoothness, ard_num_dims=columns)
        matern.lengthscale = np.sqrt(columns)
        self.covar_module = gpytorch.kernels.ScaleKernel(matern)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior of f at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, x: torch.Tensor | None, prior: bool = False, **kwargs: object) -> object:
        """q(f) at x; of a random batch of the rows if x is None."""
        return self.variational_strategy(x=x, prior=False, **kwargs)


def main(data: Path, result: Path) -> None:
    """Fit the arrays in the file ``data``, and write scores on its test rows to ``result``."""
    arrays = np.load(data)
    torch.set_num_threads(1)
    torch.manual_seed(int(arrays["seed"]))
    X, y, X_test, y_test = (
        torch.tensor(arrays[name], dtype=torch.float32) for name in ("X", "y", "X_test", "y_test")
    )
    is_binary = bool(arrays["is_binary"])
    began = time.process_time()
    of_y = gpytorch.likelihoods
    likelihood = of_y.BernoulliLikelihood() if is_binary else of_y.StudentTLikelihood()
    model = VNNGP(X, float(arrays["smoothness"]), likelihood)
    loss = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimizer = torch.optim.Adam([*loss.parameters()], lr=LEARNING_RATE)
    model.train()
    epochs = 0
    while epochs < MOST_EPOCHS and time.process_time() - began < SECONDS:
        for _ in range(model.variational_strategy._total_training_batches):
            optimizer.zero_grad()
            of_f = model(x=None)
            rows = model.variational_strategy.current_training_indices
            (-loss(of_f, y[rows])).backward()
            optimizer.step()
            if time.process_time() - began >= SECONDS:
                break
        epochs += 1
    fitted = time.process_time()
    model.eval()
    nll, error, inside = [], [], []
    with torch.no_grad():
        for X_part, y_part in zip(X_test.split(500), y_test.split(500), strict=True):
            of_f = model(X_part)
            nll.append(-likelihood.log_marginal(y_part, of_f))
            if is_binary:
                error.append((likelihood(of_f).probs > 0.5) != (y_part > 0.5))
                continue
            error.append((of_f.mean - y_part) ** 2)
            f = of_f.mean + of_f.variance.sqrt() * torch.randn(DRAWS, len(y_part))
            draws = likelihood(f).sample()
            low, high = draws.quantile(torch.tensor([0.05, 0.95]), 0)
            inside.append((low <= y_part) & (y_part <= high))
    mean_error = float(torch.cat(error).double().mean())
    scores = {
        "nll": float(torch.cat(nll).double().mean()),
        "error": mean_error if is_binary else mean_error**0.5,
        "cpu_seconds": fitted - began,
        "cpu_seconds_predicting": time.process_time() - fitted,
        "megabytes": peak_megabytes(),
        "neighbors": NEIGHBORS,
    }
    if inside:
        scores["coverage"] = float(torch.cat(inside).double().mean())
    write(result, scores)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
