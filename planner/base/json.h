/* PlanJson: the one way by which JSON comes in. */
#pragma once
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* Of the names, types and meanings in all JSON that is printed: docs/schema/README.md says when it
 * changes. Objects carry it under this name. */
#define PLAN_JSON_VERSION 1
#define PLAN_JSON_VERSION_NAME "schema_version"

/* Loads a text whose root is an object, strictly: no bent numbers, no deep nesting, no repeated
 * keys. `origin` is the file, for the error, which has line and column. The parser owns the
 * object. */
JsonObject *plan_json_load (JsonParser *parser, const char *text, const char *origin,
                            GError **error);

G_END_DECLS
