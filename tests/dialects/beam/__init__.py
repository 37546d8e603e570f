"""Tests of Beam pipelines, and Beam's own tests."""

import sys
import unittest.mock

import parameterized  # noqa: F401  # looks for a module mock when it is imported, and takes Python's own if there is none

sys.modules.setdefault("mock", unittest.mock)  # which Beam's tests import under the name it had before
