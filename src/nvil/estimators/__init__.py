"""Gradient estimators behind the contract `nvil.contracts.Estimator`, one file each."""

from nvil.estimators.nvil import NVIL, nvil, reinforce

__all__ = ["NVIL", "nvil", "reinforce"]
