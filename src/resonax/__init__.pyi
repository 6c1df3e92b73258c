"""Every public name and its home: the one list, which `__init__.py` and type checkers read."""

from .checking.check import check as check
from .checking.response import response as response
from .checking.response import Response as Response
from .checking.order import order as order
from .checking.order import RowOrder as RowOrder
from .checking.result import Check as Check
from .core.errors import (
    ArgumentError as ArgumentError,
    DataError as DataError,
    Interrupted as Interrupted,
    ResonaxError as ResonaxError,
    StoreError as StoreError,
)
from .dynamics import (
    Flow as Flow,
    Map as Map,
    Problem as Problem,
    Setting as Setting,
)
from .figures import (
    plot_check as plot_check,
    plot_map as plot_map,
    plot_sweep as plot_sweep,
)
from .guards.audit import Audit as Audit
from .guards.report import GuardReport as GuardReport
from .learners import (
    Fourier as Fourier,
    Linear as Linear,
    Momentum as Momentum,
    Network as Network,
    Omitted as Omitted,
    Polynomial as Polynomial,
    Radial as Radial,
    Transform as Transform,
    adam as adam,
    adamw as adamw,
    amsgrad as amsgrad,
    from_optax as from_optax,
    from_river as from_river,
    from_torch as from_torch,
    heavy_ball as heavy_ball,
    nesterov as nesterov,
    rmsprop as rmsprop,
    sgd as sgd,
)
from .online.guard import Guard as Guard
from .probing.probe import (
    Probe as Probe,
    probe as probe,
)
from .probing.replay import (
    Replay as Replay,
    replay as replay,
)
from .streams import (
    AR2 as AR2,
    Iid as Iid,
    Process as Process,
    Recorded as Recorded,
    Sinusoid as Sinusoid,
    Square as Square,
    Switching as Switching,
    Wave as Wave,
    shuffled as shuffled,
)
from .recordings.recording import (
    Recording as Recording,
    read_recording as read_recording,
)
from .reports.check import write_check as write_check
from .store import (
    Layout as Layout,
    Variable as Variable,
    open_store as open_store,
)
from .store.saved import (
    load as load,
    open_dataset as open_dataset,
    save_dataset as save_dataset,
)
from .simulation import (
    Responses as Responses,
    Training as Training,
    Trajectories as Trajectories,
    simulate as simulate,
    summarise as summarise,
    trajectories as trajectories,
)
from .theory import (
    Alternation as Alternation,
    alternation as alternation,
    Branch as Branch,
    Level as Level,
    Orbit as Orbit,
    OrderProof as OrderProof,
    Phase as Phase,
    Verdict as Verdict,
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
from .sweeps.experiment import (
    Experiment as Experiment,
    Judge as Judge,
)
from .sweeps.judgement import (
    Case as Case,
    Claim as Claim,
)
from .sweeps.runner import (
    run_experiments as run_experiments,
    run_sweep as run_sweep,
)
from .core.values import (
    static as static,
    value as value,
)
from .version import __version__ as __version__
