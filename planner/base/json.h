/* PlanJson: the one way by which JSON comes in. */
#pragma once
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* Loads a text whose root is an object, strictly: no bent numbers, no deep nesting, no repeated
 * keys. `origin` is the file, for the error, which has line and column. The parser owns the
 * object. */
JsonObject *plan_json_load (JsonParser *parser, const char *text, const char *origin,
                            GError **error);

G_END_DECLS
