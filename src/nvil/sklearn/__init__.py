"""The models in scikit-learn's manners: `fit`, `transform`, `score`, in pipelines and grid searches.

    codes = SigmoidBeliefNetwork(hidden=32).fit_transform(bits)
    topics = make_pipeline(CountVectorizer(max_features=2000), DocumentModel(hidden=50)).fit(texts)

Importing this imports scikit-learn and JAX; `import nvil` alone imports neither.
"""

from nvil.sklearn.document_model import DocumentModel as DocumentModel
from nvil.sklearn.sigmoid_belief_network import SigmoidBeliefNetwork as SigmoidBeliefNetwork

__all__ = ["DocumentModel", "SigmoidBeliefNetwork"]
