/* PlanJson: the one way by which JSON comes in. */
#pragma once
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* The version of names, types and meanings in all JSON that is printed, and its own name there;
 * docs/schema/README.md says when it changes. */
#define PLAN_JSON_VERSION 1
#define PLAN_JSON_VERSION_NAME "schema_version"

/* Loads a text whose root is an object, strictly: numbers are decimal and fit 64 bits, nesting is
 * bounded, no key is repeated. `origin` is the file, for the error, which has line and column. The
 * parser owns the object. */
JsonObject *plan_json_load (JsonParser *parser, const char *text, const char *origin,
                            GError **error);

G_END_DECLS
