"""Links from code in the text to the reference, and to the pages of other packages."""

import re
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

# Of other packages a page for each name, since the build uses no network. "$" is the name.
GPFLOW = "https://gpflow.github.io/GPflow/develop/api/gpflow"
TENSORFLOW = "https://www.tensorflow.org/api_docs/python"
PROBABILITY = "https://www.tensorflow.org/probability/api_docs/python"
ARVIZ = "https://python.arviz.org/en/0.23.0/api/generated"
SKLEARN = "https://scikit-learn.org/stable/modules/generated"
ELSEWHERE = {
    f"{GPFLOW}/models/index.html#$": "gpflow.models.SVGP gpflow.models.VGP gpflow.models.GPR "
    "gpflow.models.GPMC gpflow.models.SGPR",
    f"{GPFLOW}/optimizers/index.html#$": "gpflow.optimizers.Scipy "
    "gpflow.optimizers.NaturalGradient",
    f"{GPFLOW}/kernels/index.html#$": "gpflow.kernels.Kernel gpflow.kernels.SharedIndependent "
    "gpflow.kernels.SeparateIndependent gpflow.kernels.LinearCoregionalization",
    f"{GPFLOW}/likelihoods/index.html#$": "gpflow.likelihoods.Likelihood "
    "gpflow.likelihoods.StudentT gpflow.likelihoods.Gaussian gpflow.likelihoods.Bernoulli "
    "gpflow.likelihoods.Beta gpflow.likelihoods.Exponential gpflow.likelihoods.Gamma "
    "gpflow.likelihoods.HeteroskedasticTFPConditional "
    "gpflow.likelihoods.Poisson gpflow.likelihoods.Softmax gpflow.likelihoods.MultiClass "
    "gpflow.likelihoods.Ordinal gpflow.likelihoods.SwitchedLikelihood "
    "gpflow.likelihoods.ScalarLikelihood gpflow.likelihoods.QuadratureLikelihood",
    f"{GPFLOW}/monitor/index.html": "gpflow.monitor",
    f"{GPFLOW}/index.html#gpflow-parameter": "gpflow.Parameter",
    f"{GPFLOW}/utilities/index.html#$": "gpflow.utilities.set_trainable gpflow.utilities.freeze",
    f"{TENSORFLOW}/tf/data/Dataset": "tf.data.Dataset",
    f"{TENSORFLOW}/tf/Tensor": "tf.Tensor",
    f"{TENSORFLOW}/tf/train/Checkpoint": "tf.train.Checkpoint",
    f"{TENSORFLOW}/tf/distribute": "tf.distribute",
    f"{PROBABILITY}/tfp/mcmc/sample_chain": "tfp.mcmc.sample_chain",
    f"{PROBABILITY}/tfp/distributions/Distribution": "tfp.distributions.Distribution",
    f"{PROBABILITY}/tfp/distributions/NegativeBinomial": "tfp.distributions.NegativeBinomial",
    f"{PROBABILITY}/tfp/distributions/Binomial": "tfp.distributions.Binomial",
    f"{ARVIZ}/$.html": "arviz.InferenceData arviz.ELPDData arviz.loo arviz.compare arviz.summary "
    "arviz.plot_ppc arviz.ess",
    f"{SKLEARN}/$.html": "sklearn.pipeline.Pipeline sklearn.model_selection.GridSearchCV "
    "sklearn.base.BaseEstimator",
    "https://numpy.org/doc/stable/reference/generated/$.html": "numpy.ndarray",
    "https://pandas.pydata.org/docs/reference/api/$.html": "pandas.DataFrame",
    "https://docs.python.org/3/library/pathlib.html#$": "pathlib.Path",
    "https://docs.python.org/3/library/collections.abc.html#$": "collections.abc.Sequence",
}
# Other names of the same: as annotations have them, and as pages write them.
ALIASES = {
    "gpflow.kernels.base.Kernel": "gpflow.kernels.Kernel",
    "gpflow.likelihoods.base.Likelihood": "gpflow.likelihoods.Likelihood",
    "gpflow.base.Parameter": "gpflow.Parameter",
    "tensorflow.python.framework.tensor.Tensor": "tf.Tensor",
    "pd.DataFrame": "pandas.DataFrame",
    "gpflow.set_trainable": "gpflow.utilities.set_trainable",
    "SVGP": "gpflow.models.SVGP",
    "VGP": "gpflow.models.VGP",
    "GPR": "gpflow.models.GPR",
    "Scipy": "gpflow.optimizers.Scipy",
    "NaturalGradient": "gpflow.optimizers.NaturalGradient",
    "SharedIndependent": "gpflow.kernels.SharedIndependent",
    "SeparateIndependent": "gpflow.kernels.SeparateIndependent",
    "LinearCoregionalization": "gpflow.kernels.LinearCoregionalization",
    "GridSearchCV": "sklearn.model_selection.GridSearchCV",
}


def addresses() -> dict[str, str]:
    """The address of every name that is not of this package."""
    known = {
        name: page.replace("$", name) for page, names in ELSEWHERE.items() for name in names.split()
    }
    return known | {alias: known[name] for alias, name in ALIASES.items()}


def link_elsewhere(app: Any, env: Any, node: nodes.Element, text: nodes.Node) -> nodes.Node | None:
    """Link a type, or another reference that this package does not define."""
    address = addresses().get(node["reftarget"])
    return nodes.reference("", "", text, refuri=address, internal=False) if address else None


def link_back(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    """Links from source to the reference, with the module in which the reference has a name."""
    if page.startswith("_modules/"):
        objects = app.env.get_domain("py").get_objects()
        anchors = {
            name.split(".")[-1]: anchor
            for name, _, kind, _, anchor, _ in objects
            if kind in ("class", "function")
        }
        context["body"] = re.sub(
            r'#gpflow_aaci\.(\w+)"',
            lambda link: f'#{anchors.get(link[1], "gpflow_aaci." + link[1])}"',
            context["body"],
        )


WITH_COLUMNS = "which_likelihood"  # the second column of its tables has GPflow's likelihoods


class LinkCode(SphinxPostTransform):
    """Links the first ``name`` or ``name(...)`` in each section, if it is a public name."""

    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        here = self.env.docname
        known, seen = self.known(), set()
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext().split("(")[0]
            if here == WITH_COLUMNS and _is_in_second_column(literal):
                name = f"gpflow.likelihoods.{name}"
            if name not in known or _is_in(literal, nodes.reference, nodes.title):
                continue
            section = literal.parent
            while section.parent and not isinstance(section, (nodes.section, nodes.row)):
                section = section.parent
            if (id(section), name) in seen:
                continue
            seen.add((id(section), name))
            page, anchor = known[name]
            if page and page != here:
                anchor = self.app.builder.get_relative_uri(here, page) + anchor
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=anchor))

    def known(self) -> dict[str, tuple[str, str]]:
        """The page and anchor of every name; no page for an address elsewhere."""
        known = {name: ("", address) for name, address in addresses().items()}
        theirs = {name.split(".")[-1] for name in known if name.startswith("gpflow.likelihoods.")}
        # Which of the two a page means by a name of both is known on these pages only.
        are_ours = self.env.docname in ("reference/formulas", WITH_COLUMNS)
        for name, _, kind, page, anchor, _ in self.env.get_domain("py").get_objects():
            if kind not in ("class", "function") or not name.startswith("gpflow_aaci."):
                continue
            parts = name.split(".")
            names = [".".join(parts[begin:]) for begin in range(len(parts))]
            for short in (*names, f"{parts[1]}.{parts[-1]}"):
                if short not in theirs or are_ours:
                    known[short] = (page, f"#{anchor}")
        return known


def _is_in_second_column(node: nodes.Node) -> bool:
    while node.parent is not None and not isinstance(node, nodes.entry):
        node = node.parent
    row = node.parent
    return row is not None and len(row) == 3 and row.index(node) == 1


def _is_in(node: nodes.Node, *kinds: type) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, kinds):
            return True
    return False
