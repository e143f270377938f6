"""The models that the paper compares with, so that they can be measured on the same cases and by the same figures.

Each module has `Settings` (by default those of the published model), `fit(x, settings, *, validation, seed, report)`,
which returns `Parameters`, and `log_prob(parameters, x)`. Images are arrays of 0s and 1s, one case a row; documents are
SciPy CSR matrices of word counts, one document a row.

| module | model | log_prob |
|---|---|---|
| `mixture` | mixture of factorial Bernoullis (MoB) | exact |
| `nade` | NADE | exact |
| `rbm` | restricted Boltzmann machine | estimate (annealed importance sampling) |
| `unigram` | unigram model of words | exact |
| `lda` | latent Dirichlet allocation | lower bound, or estimate by `lda.importance_log_prob` |
| `replicated_softmax` | Replicated Softmax | estimate (annealed importance sampling) |
| `docnade` | DocNADE | exact, for a random order of the words |

Every document model gives the probability of the words in an order: the multinomial coefficient is left out. No model
explains the length of a document.
"""

from nvil.rivals import docnade, lda, mixture, nade, rbm, replicated_softmax, unigram
from nvil.rivals.annealing import Estimate
from nvil.rivals.perplexity import Perplexities, perplexities, perplexity_errors

__all__ = [
    "Estimate",
    "Perplexities",
    "docnade",
    "lda",
    "mixture",
    "nade",
    "perplexities",
    "perplexity_errors",
    "rbm",
    "replicated_softmax",
    "unigram",
]
