/* What tests of config.json check of each configuration. */
#pragma once
#include "planner/base/error.h"
#include "planner/model/model.h"
#include <check.h>
#include <string.h>

/* A configuration is read, and its model printed as that text. */
static inline void
check_config_is_read (const char *config, const char *text)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (config, strlen (config), "config.json", &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (model->name, strstr (config, "text_config") ? "custom-text" : "custom");
  g_autofree char *printed = plan_model_print (model);
  ck_assert_str_eq (printed, text);
}

/* A configuration is refused with one line, which names the file and has that message in it. */
static inline void
check_config_is_refused (const char *config, const char *message, int code)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_parse_config (config, strlen (config), "c.json", &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, code), "%s", error->message);
  ck_assert_msg (strstr (error->message, message), "%s", error->message);
  ck_assert_msg (g_str_has_prefix (error->message, "c.json:"), "%s", error->message);
  ck_assert_msg (!strchr (error->message, '\n'), "%s", error->message);
}
