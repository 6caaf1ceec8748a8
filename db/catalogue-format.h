/* The marks of a catalogue, for the program that builds it and those that open it. */
#pragma once

/* SQLite's application_id of catalogues: "fspc". */
#define DB_CATALOGUE_APPLICATION_ID 0x66737063

/* Version; raised by every change of catalogue.sql that readers must know of. */
#define DB_CATALOGUE_VERSION 2
