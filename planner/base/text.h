/* PlanText: what every reader of the user's text shares: a small file read whole, a result written
 * whole, a value shown in a message, and the name that was probably meant. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Larger inputs are not what they claim to be. */
#define PLAN_TEXT_MAX_BYTES (10 * 1024 * 1024)

/* What some editors and spreadsheets put before a text in UTF-8. */
#define PLAN_TEXT_BYTE_ORDER_MARK "\xef\xbb\xbf"

/* Reads a regular file of at most PLAN_TEXT_MAX_BYTES that holds UTF-8 without NUL, but for a byte
 * order mark before it. */
gboolean plan_text_read_file (const char *path, char **out_text, gsize *out_length, GError **error);

/* Maps a large regular file that is only read. */
GMappedFile *plan_text_map_file (const char *path, GError **error);

/* Writes a result to the file that the user named. A regular file is replaced whole or stays as it
 * is, and keeps its mode; what else is there (a device, a pipe, a symbolic link) is written
 * through. */
gboolean plan_text_write_file (const char *path, const char *bytes, gsize length, GError **error);

/* Checks text as plan_text_read_file does. */
gboolean plan_text_check (const char *text, gsize length, const char *origin, GError **error);

/* 'text' in quotes, shortened, control characters escaped; the caller frees. */
char *plan_text_quote (const char *text);

/* The same without quotes, and longer: for a message that quotes the user. */
char *plan_text_line (const char *text);

/* The same for the whole text; line ends and tabs stay. */
char *plan_text_lines (const char *text);

/* The closest name, the earlier of two; NULL when more than a third of the word differs. */
const char *plan_text_closest (const char *word, const char *const *names);

/* "did you mean 'x' or 'y'?" of the names that have the word as a part, or of one that is close,
 * else all names; the caller frees. */
char *plan_text_suggest (const char *word, const char *const *names);

/* TRUE for a non-empty word of letters, digits and . _ + - only. */
gboolean plan_text_is_name (const char *text);

/* The sections of an .ini text that is part of the program. */
GKeyFile *plan_text_built_in (const char *text);

G_END_DECLS
