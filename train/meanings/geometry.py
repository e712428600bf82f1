"""Cosines, a picture in two dimensions, nearest neighbours.

Shapes: N vector, D its width, K class.
"""

from typing import NamedTuple

import numpy as np

# Cosines of equal vectors differ by less, as batches round differently.
TIE = 1e-6
ROWS = 512  # of cosines at a time; 2,368 sentences take 10 MB


class Picture(NamedTuple):
  """Vectors in two dimensions.

  Attributes:
    points: float64 [N, 2], centred.
    shares: of the variance of all D dimensions, for each of the two.
  """

  points: np.ndarray
  shares: tuple[float, float]


def unit(vectors_ND: np.ndarray) -> np.ndarray:
  """Returns vectors of length 1, float64 [..., N, D]; zeros stay zeros."""
  vectors_ND = np.asarray(vectors_ND, np.float64)
  lengths_N1 = np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
  return vectors_ND / np.maximum(lengths_N1, np.finfo(np.float64).tiny)


def cosines(vectors_ND: np.ndarray) -> np.ndarray:
  """Returns the cosine of each two vectors, float64 [N, N]; symmetric."""
  unit_ND = unit(vectors_ND)
  found_NN = np.clip(unit_ND @ unit_ND.T, -1.0, 1.0)
  return (found_NN + found_NN.T) / 2


def project(vectors_ND: np.ndarray) -> Picture:
  """Returns the first two principal components of vectors.

  The sign of a component is such that its largest weight is positive, so equal
  vectors give equal pictures. Missing components, of a single vector or of
  equal ones, are 0.
  """
  vectors_ND = np.asarray(vectors_ND, np.float64)
  centred_ND = vectors_ND - vectors_ND.mean(axis=0)
  # Equal vectors differ from their mean by roundings, which are no picture.
  rounding = np.finfo(np.float32).eps * np.abs(vectors_ND).max(initial=0)
  if np.abs(centred_ND).max(initial=0) <= rounding:
    return Picture(np.zeros((len(vectors_ND), 2)), (0.0, 0.0))
  left_NR, scales_R, right_RD = np.linalg.svd(centred_ND, full_matrices=False)
  rows = np.arange(len(right_RD))
  signs_R = np.sign(right_RD[rows, np.abs(right_RD).argmax(axis=1)])
  found_NR = left_NR * (scales_R * signs_R)
  points_N2 = np.zeros((len(vectors_ND), 2))
  points_N2[:, : found_NR.shape[1]] = found_NR[:, :2]
  shares = np.zeros(2)
  shares[: len(scales_R)] = (scales_R**2 / (scales_R**2).sum())[:2]
  return Picture(points_N2, (float(shares[0]), float(shares[1])))


def nearest_classes(
  vectors_ND: np.ndarray, classes_N: np.ndarray, groups_N: np.ndarray
) -> np.ndarray:
  """Returns the class of each vector's nearest neighbour, int [N].

  Nearest is the largest cosine with a vector of another group; equal sentences
  are a group, so that no sentence is its own neighbour. Of neighbours that are
  equally near (within 1e-6) the most frequent class counts, and of equally
  frequent ones the lowest.

  Args:
    vectors_ND: float [N, D].
    classes_N: int [N], from 0.
    groups_N: int [N].
  """
  unit_ND = unit(vectors_ND)
  one_hot_NK = np.eye(classes_N.max() + 1)[classes_N]
  found = []
  for start in range(0, len(unit_ND), ROWS):
    rows = slice(start, start + ROWS)
    cosines_RN = unit_ND[rows] @ unit_ND.T
    cosines_RN[groups_N[rows, None] == groups_N] = -np.inf
    best_R1 = cosines_RN.max(axis=1, keepdims=True)
    found.append(((cosines_RN >= best_R1 - TIE) @ one_hot_NK).argmax(axis=1))
  return np.concatenate(found)
