from . import active_learning as active_learning
from . import calibration as calibration
from . import data as data
from . import distributions as distributions
from . import errors as errors
from . import estimators as estimators
from . import generative as generative
from . import metrics as metrics
from . import neighbors as neighbors
from . import networks as networks
from . import plots as plots
from . import sample_distances as sample_distances
from . import sampling as sampling
from . import scorers as scorers
from . import training as training
from .estimators import BayesianRegressor as BayesianRegressor
from .estimators import CombinedRegressor as CombinedRegressor
from .estimators import GPRegressor as GPRegressor
from .estimators import LocalRegressor as LocalRegressor
from .estimators import MCDropoutRegressor as MCDropoutRegressor
from .estimators import MeanVarianceRegressor as MeanVarianceRegressor
from .estimators import SparseGPRegressor as SparseGPRegressor
from .generative import VAE as VAE
from .generative import CombVAE as CombVAE
from .sampling import LocalitySampler as LocalitySampler
from .version import __version__ as __version__

__all__: list[str]
