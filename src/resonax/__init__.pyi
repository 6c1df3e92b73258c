"""The public names and their homes: the one list, which `__init__.py` and type checkers read.

They are what the README and the guides use. Classes of results and of errors, and what only an
extension needs, are imported from their rooms: `resonax.theory.Verdict`.
"""

from .checking.check import check as check
from .checking.order import order as order
from .checking.response import response as response
from .core.errors import (
    ArgumentError as ArgumentError,
    ResonaxError as ResonaxError,
)
from .dynamics import (
    Problem as Problem,
    Setting as Setting,
)
from .learners import (
    Fourier as Fourier,
    Linear as Linear,
    Network as Network,
    Polynomial as Polynomial,
    adam as adam,
    adamw as adamw,
    from_optax as from_optax,
    from_river as from_river,
    from_torch as from_torch,
    heavy_ball as heavy_ball,
    nesterov as nesterov,
    rmsprop as rmsprop,
    sgd as sgd,
)
from .online.guard import Guard as Guard
from .probing.probe import probe as probe
from .probing.replay import replay as replay
from .recordings.recording import read_recording as read_recording
from .reports.check import write_check as write_check
from .simulation import (
    Training as Training,
    simulate as simulate,
    trajectories as trajectories,
)
from .store import open_store as open_store
from .store.saved import load as load
from .streams import (
    AR2 as AR2,
    Iid as Iid,
    Recorded as Recorded,
    Sinusoid as Sinusoid,
    Square as Square,
    Switching as Switching,
    shuffled as shuffled,
)
from .sweeps.runner import run_sweep as run_sweep
from .theory import (
    best_momentum as best_momentum,
    critical_lr as critical_lr,
    critical_momentum as critical_momentum,
    level as level,
    lyapunov as lyapunov,
    order_proof as order_proof,
    rates as rates,
    stability_map as stability_map,
    tongues as tongues,
    verdict as verdict,
)
from .version import __version__ as __version__
