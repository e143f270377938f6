"""Gradient estimators behind the contract `nvil.contracts.Estimator`, one file each, compared in docs/estimators.md."""

from nvil.estimators.arm import ARM, DisARM, arm, disarm
from nvil.estimators.concrete import Concrete, concrete
from nvil.estimators.double_control_variates import DoubleControlVariates, double_control_variates
from nvil.estimators.muprop import MuProp, muprop
from nvil.estimators.nvil import NVIL, nvil, reinforce, rloo
from nvil.estimators.ovis import OVIS, ovis
from nvil.estimators.rebar import REBAR, rebar
from nvil.estimators.reweighted_wake_sleep import ReweightedWakeSleep, reweighted_wake_sleep
from nvil.estimators.straight_through import StraightThrough, straight_through
from nvil.estimators.vimco import VIMCO, vimco
from nvil.estimators.wake_sleep import WakeSleep, wake_sleep

__all__ = [
    "ARM",
    "NVIL",
    "OVIS",
    "REBAR",
    "VIMCO",
    "Concrete",
    "DisARM",
    "DoubleControlVariates",
    "MuProp",
    "ReweightedWakeSleep",
    "StraightThrough",
    "WakeSleep",
    "arm",
    "concrete",
    "disarm",
    "double_control_variates",
    "muprop",
    "nvil",
    "ovis",
    "rebar",
    "reinforce",
    "reweighted_wake_sleep",
    "rloo",
    "straight_through",
    "vimco",
    "wake_sleep",
]
