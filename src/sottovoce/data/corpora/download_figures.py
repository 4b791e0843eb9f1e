"""What is published about LibriSpeech and Common Voice 13: sizes and sums of archives, and what is inside them.

LibriSpeech: MD5 sums are those of OpenSLR 12 (md5sum.txt), sizes in bytes those of Kaldi's recipe, speakers and hours
those of Panayotov et al. 2015, table 1, utterances those of the corpus card (openslr/librispeech_asr). The numbers of
chapters are not printed; CHAPTERS.TXT, which is part of every archive, lists them.

Common Voice: rows of every table, and size and SHA-256 of every archive, are those of the release's statistics
(common-voice/cv-dataset, cv-corpus-13.0-2023-03-09.json). Speakers of the training sets are those of the paper
(P:1468); those of other splits are not printed, and not checked.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    name: str
    octets: int
    algorithm: str
    digest: str


@dataclass(frozen=True)
class Subset:
    """A subset of LibriSpeech."""

    archive: Archive
    speakers: int
    utterances: int
    hours: float  # printed with one decimal


@dataclass(frozen=True)
class Language:
    """A language of Common Voice 13."""

    archive: Archive
    rows: dict[str, int]  # of every table
    train_speakers: int


def _subset(name: str, octets: int, digest: str, speakers: int, utterances: int, hours: float) -> Subset:
    return Subset(Archive(f"{name}.tar.gz", octets, "md5", digest), speakers, utterances, hours)


def _language(name: str, octets: int, digest: str, speakers: int, **rows: int) -> Language:
    archive = Archive(f"cv-corpus-13.0-2023-03-09-{name}.tar.gz", octets, "sha256", digest)
    return Language(archive, rows, speakers)


LIBRISPEECH = {
    "dev-clean": _subset("dev-clean", 337_926_286, "42e2234ba48799c1f50f24a7926300a1", 40, 2_703, 5.4),
    "dev-other": _subset("dev-other", 314_305_928, "c8d0bcc9cca99d4f8b62fcc847357931", 33, 2_864, 5.3),
    "test-clean": _subset("test-clean", 346_663_984, "32fa31d27d2e1cad72775fee3f4849a9", 40, 2_620, 5.4),
    "test-other": _subset("test-other", 328_757_843, "fb5a50374b501bb3bac4815ee91d3135", 33, 2_939, 5.1),
    "train-clean-100": _subset(
        "train-clean-100", 6_387_309_499, "2a93770f6d5c6c964bc36631d331a522", 251, 28_539, 100.6
    ),
    "train-clean-360": _subset(
        "train-clean-360", 23_049_477_885, "c0e676e450a7ff2f54aeade5171606fa", 921, 104_014, 363.6
    ),
    "train-other-500": _subset(
        "train-other-500", 30_593_501_606, "d1a0fd59409feb2c614ce4d30c387708", 1_166, 148_688, 496.7
    ),
}

COMMON_VOICE = {
    "en": _language(
        "en",
        82_019_442_116,
        "e9af8ba157ea45d94b98490004b8e7e1b8432414e27be396b27b94e99e284421",
        34_753,
        train=1_013_968,
        dev=16_372,
        test=16_372,
        validated=1_689_599,
    ),
    "fr": _language(
        "fr",
        27_191_480_970,
        "a44e73aa19a6805838a1302c1d311b704e90de7463da187b4b4ac3bcfba053fd",
        6_856,
        train=509_300,
        dev=16_114,
        test=16_114,
        validated=676_602,
    ),
    "de": _language(
        "de",
        33_828_262_029,
        "71664fadd4189922f3c814889f640111e925fb511b290242e10e7a768bd7b1bb",
        7_127,
        train=540_437,
        dev=16_143,
        test=16_143,
        validated=868_264,
    ),
}
