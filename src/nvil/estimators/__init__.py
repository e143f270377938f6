"""Gradient estimators behind the contract `nvil.contracts.Estimator`, one file each."""

from nvil.estimators.arm import ARM, DisARM, arm, disarm
from nvil.estimators.nvil import NVIL, nvil, reinforce
from nvil.estimators.reweighted_wake_sleep import ReweightedWakeSleep, reweighted_wake_sleep
from nvil.estimators.vimco import VIMCO, vimco
from nvil.estimators.wake_sleep import WakeSleep, wake_sleep

__all__ = [
    "ARM",
    "NVIL",
    "VIMCO",
    "DisARM",
    "ReweightedWakeSleep",
    "WakeSleep",
    "arm",
    "disarm",
    "nvil",
    "reinforce",
    "reweighted_wake_sleep",
    "vimco",
    "wake_sleep",
]
