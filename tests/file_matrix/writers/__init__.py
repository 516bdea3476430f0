"""What writes the files, a module for each family."""

from tests.file_matrix.rows import Row
from tests.file_matrix.writers.arrays import ARRAYS
from tests.file_matrix.writers.columnar import COLUMNAR
from tests.file_matrix.writers.columns import COLUMN_ORDERS
from tests.file_matrix.writers.databases import DATABASES
from tests.file_matrix.writers.documents import DOCUMENTS
from tests.file_matrix.writers.exports import EXPORTS
from tests.file_matrix.writers.folders import FOLDERS
from tests.file_matrix.writers.interrupted import INTERRUPTED
from tests.file_matrix.writers.picture_programs import PICTURE_PROGRAMS
from tests.file_matrix.writers.pictures import PICTURES
from tests.file_matrix.writers.platforms import PLATFORMS
from tests.file_matrix.writers.recorders import RECORDERS
from tests.file_matrix.writers.sound_programs import SOUND_PROGRAMS
from tests.file_matrix.writers.sounds import SOUNDS
from tests.file_matrix.writers.tables import TABLES

ROWS: tuple[Row, ...] = (
    *(*TABLES, *EXPORTS, *COLUMN_ORDERS, *COLUMNAR, *DATABASES, *DOCUMENTS, *PLATFORMS, *ARRAYS),
    *(*PICTURES, *PICTURE_PROGRAMS, *SOUNDS, *SOUND_PROGRAMS, *RECORDERS, *FOLDERS, *INTERRUPTED),
)
"""All rows, in the order of the table."""
