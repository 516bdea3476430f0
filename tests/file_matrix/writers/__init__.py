"""What writes the files, a module for each family."""

from tests.file_matrix.rows import Row
from tests.file_matrix.writers.columnar import COLUMNAR
from tests.file_matrix.writers.databases import DATABASES
from tests.file_matrix.writers.pictures import PICTURES
from tests.file_matrix.writers.sounds import SOUNDS
from tests.file_matrix.writers.tables import TABLES

ROWS: tuple[Row, ...] = (*TABLES, *COLUMNAR, *DATABASES, *PICTURES, *SOUNDS)
