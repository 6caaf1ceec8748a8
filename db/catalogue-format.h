/* What marks a catalogue, for who builds it and who opens it. */
#pragma once

/* Tells it from other files: "fspc". */
#define DB_CATALOGUE_APPLICATION_ID 0x66737063

/* Raised by every change of catalogue.sql that a reader must know of. */
#define DB_CATALOGUE_VERSION 2
