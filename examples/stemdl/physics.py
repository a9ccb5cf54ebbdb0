# SPDX-License-Identifier: Apache-2.0
"""Convergent-beam electron diffraction of a thin crystal, by the multislice method.

A focused probe stands on each point of a scan. The crystal's slices shift its phase one after the other, with free
propagation in between. A detector in the far field records the wave behind the crystal. The network computes the
inverse: from the diffraction patterns to the projected potential.

Sources: the multislice method and the interaction parameter as in E. J. Kirkland, Advanced Computing in Electron
Microscopy (2nd ed., chapters 2, 5 and 6); the atom is a screened Coulomb (Wentzel) potential with the Thomas-Fermi
radius 0.885 a0 / Z^(1/3), smeared by thermal vibration. Left out: bonding, phonons beyond that smearing, lens
aberrations, finite dose. Lengths in angstrom, potentials in volt.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COULOMB = 14.399645  # e / (4 pi eps0) in V angstrom
BOHR = 0.529177
REST_ENERGY = 510998.95  # of the electron, eV


@dataclass(frozen=True)
class Microscope:
    """The experiment: a periodic cell of `pixels` x `pixels`, in the middle of which the probe scans a window."""

    volts: float = 200e3
    aperture: float = 20e-3  # half angle of convergence, rad
    cell: float = 12.8
    pixels: int = 64
    window: float = 6.4
    scan: int = 16  # probe positions per side
    detector: int = 8  # detector pixels per side
    detector_edge: float = 32e-3  # half width of the detector, rad
    slice_thickness: float = 2.0
    slices: int = 5

    @property
    def wavelength(self) -> float:
        """Return de Broglie's wavelength, relativistic, in angstrom."""
        return 12.2643 / np.sqrt(self.volts * (1 + self.volts / (2 * REST_ENERGY)))

    @property
    def interaction(self) -> float:
        """Return the phase in radians per volt and angstrom (Kirkland, equation 5.6)."""
        energy = (REST_ENERGY + self.volts) / (2 * REST_ENERGY + self.volts)
        return 2 * np.pi / (self.wavelength * self.volts) * energy

    @property
    def frequencies(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the spatial frequencies of the cell, in 1/angstrom."""
        q = np.fft.fftfreq(self.pixels, self.cell / self.pixels)
        return q[:, None], q[None, :]

    @property
    def window_pixels(self) -> slice:
        """Return the pixels of the cell, along one side, that lie in the window."""
        inside = round(self.pixels * self.window / self.cell)
        first = (self.pixels - inside) // 2
        return slice(first, first + inside)


@dataclass(frozen=True)
class Crystal:
    """Two kinds of columns on a turned and shifted rectangular lattice, like a perovskite seen along an axis."""

    sides: tuple[float, float]
    angle: float  # rad
    origin: tuple[float, float]
    atomic_numbers: tuple[int, int]  # at the corners, in the middle
    vibration: float  # root mean square displacement along one axis

    @classmethod
    def random(cls, rng: np.random.Generator) -> "Crystal":
        corners, middles = (22, 26, 31, 38), (8, 14, 22, 27)
        return cls(
            sides=tuple(rng.uniform(3.6, 4.4, 2)),
            angle=rng.uniform(-0.25, 0.25),
            origin=tuple(rng.uniform(0.0, 4.0, 2)),
            atomic_numbers=(int(rng.choice(corners)), int(rng.choice(middles))),
            vibration=rng.uniform(0.06, 0.12),
        )

    def columns(self, edge: float) -> list[tuple[int, NDArray[np.float64]]]:
        """Return (Z, positions n x 2) of the columns within `edge` of the middle of the cell, which is at 0."""
        steps = np.arange(-8, 9)
        grid = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
        turn = np.array([[np.cos(self.angle), -np.sin(self.angle)], [np.sin(self.angle), np.cos(self.angle)]])
        result = []
        for number, shift in zip(self.atomic_numbers, (0.0, 0.5), strict=True):
            places = ((grid + shift) * self.sides + self.origin) @ turn.T
            result.append((number, places[np.abs(places).max(axis=1) < edge]))
        return result


def projected_potential(crystal: Crystal, microscope: Microscope) -> NDArray[np.float64]:
    """Return one slice's potential, projected along the beam: pixels x pixels, V angstrom.

    It is computed in Fourier space, where the screened Coulomb potential is 4 pi Z e / (k^2 + 1/a^2), k = 2 pi q. The
    columns end half an angstrom before the cell does, so that its periodic images do not touch.
    """
    qx, qy = microscope.frequencies
    square = qx**2 + qy**2
    total = np.zeros((microscope.pixels, microscope.pixels), complex)
    for number, places in crystal.columns(microscope.cell / 2 - 0.5):
        radius = 0.885 * BOHR / number ** (1 / 3)
        atom = 4 * np.pi * COULOMB * number / ((2 * np.pi) ** 2 * square + radius**-2)
        atom = atom * np.exp(-2 * (np.pi * crystal.vibration) ** 2 * square)
        along_x = np.exp(-2j * np.pi * places[:, :1] * qx.ravel())
        along_y = np.exp(-2j * np.pi * places[:, 1:] * qy.ravel())
        total += atom * (along_x.T @ along_y)
    area_of_pixel = (microscope.cell / microscope.pixels) ** 2
    return np.fft.fftshift(np.fft.ifft2(total).real) / area_of_pixel


def diffraction(potential: NDArray[np.float64], microscope: Microscope) -> NDArray[np.float32]:
    """Return the patterns of all probe positions: scan x scan x detector x detector, fractions of the beam."""
    m = microscope
    qx, qy = m.frequencies
    square = qx**2 + qy**2
    limit = 2 / 3 * 0.5 * m.pixels / m.cell  # beyond two thirds of Nyquist a product of two waves would fold back
    passed = square < limit**2
    flight = np.where(passed, np.exp(-1j * np.pi * m.wavelength * m.slice_thickness * square), 0)
    bent = np.fft.fft2(np.exp(1j * m.interaction * potential)) * passed
    transmission = np.fft.ifft2(bent).astype(np.complex64)

    wave = _probes(m, qx, qy, square)
    for _ in range(m.slices):
        wave = np.fft.ifft2(np.fft.fft2(wave * transmission) * flight.astype(np.complex64))
    intensity = np.abs(np.fft.fft2(wave)) ** 2 / m.pixels**2
    return _on_detector(np.fft.fftshift(intensity, axes=(-2, -1)), m)


def _probes(
    m: Microscope, qx: NDArray[np.float64], qy: NDArray[np.float64], square: NDArray[np.float64]
) -> NDArray[np.complex64]:
    """Return the focused wave at each probe position, each of total intensity 1: scan^2 x pixels x pixels."""
    inside = (m.wavelength**2 * square <= m.aperture**2).astype(float)
    inside *= m.pixels / np.sqrt(inside.sum())
    first = (m.cell - m.window) / 2
    positions = first + (np.arange(m.scan) + 0.5) * m.window / m.scan
    along_x = np.exp(-2j * np.pi * positions[:, None] * qx.ravel())
    along_y = np.exp(-2j * np.pi * positions[:, None] * qy.ravel())
    shifts = along_x[:, None, :, None] * along_y[None, :, None, :]
    return np.fft.ifft2((shifts * inside).reshape(-1, m.pixels, m.pixels).astype(np.complex64))


def _on_detector(intensity: NDArray[np.floating], m: Microscope) -> NDArray[np.float32]:
    """Sum the far field's pixels into those of the detector."""
    half = round(m.detector_edge / m.wavelength * m.cell)
    half -= half % (m.detector // 2)
    middle, each = m.pixels // 2, 2 * half // m.detector
    seen = intensity[:, middle - half : middle + half, middle - half : middle + half]
    seen = seen.reshape(m.scan, m.scan, m.detector, each, m.detector, each)
    return seen.sum(axis=(3, 5)).astype(np.float32)


def sample(seed: tuple[int, ...], microscope: Microscope) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a crystal's patterns (detector^2 x scan x scan) and its potential in the window, V angstrom per slice."""
    potential = projected_potential(Crystal.random(np.random.default_rng(seed)), microscope)
    patterns = diffraction(potential, microscope)
    window = microscope.window_pixels
    channels = patterns.reshape(microscope.scan, microscope.scan, -1).transpose(2, 0, 1)
    return np.ascontiguousarray(channels), potential[window, window].astype(np.float32)
