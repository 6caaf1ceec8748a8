/* SPDX-License-Identifier: Apache-2.0 */
/* FLOPs per token, as Megatron-LM counts them. */
#include "config.h"

#include "planner/model/model.h"

#include <check.h>
#include <stdlib.h>

/* Megatron-LM's own count for its logs: GBS 128 and a vocabulary padded to 128384. */
START_TEST (flops_are_those_of_megatron)
{
  g_autoptr (PlanModel) small = plan_model_new ("llama3-8b", NULL);
  g_autoptr (PlanModel) large = plan_model_new ("llama3-70b", NULL);
  const double at_8192 = 128 * 8192 * plan_model_flops_per_token (small, 8192, 128384);
  const double at_4096 = 128 * 4096 * plan_model_flops_per_token (small, 4096, 128384);
  const double at_1024 = 128 * 1024 * plan_model_flops_per_token (small, 1024, 128384);
  const double of_70b = 128 * 1024 * plan_model_flops_per_token (large, 1024, 128384);
  ck_assert_double_eq_tol (at_8192 / 1e16, 5.3974, 5e-5);
  ck_assert_double_eq_tol (at_4096 / 1e16, 2.5298, 5e-5);
  ck_assert_double_eq_tol (at_1024 / 1e15, 6.0079, 5e-5);
  ck_assert_double_eq_tol (of_70b / 1e16, 5.5187, 5e-5);
}
END_TEST

/* Term by term as in Megatron-LM training.py, transformer_flops, with numbers in place of names. */
START_TEST (flops_of_every_kind)
{
  const double s = 4096;
  g_autoptr (PlanModel) gpt = plan_model_new ("gpt2-xl", NULL);
  ck_assert_double_eq (
      plan_model_flops_per_token (gpt, 1024, 50304),
      6.0 * (48 * (2.0 * 1600 * 6400 + 4.0 * 1600 * 1600 + 1600 * 1024.0) + 1600 * 50304.0));
  g_autoptr (PlanModel) mixtral = plan_model_new ("mixtral-8x7b", NULL);
  ck_assert_double_eq (
      plan_model_flops_per_token (mixtral, 4096, 32000),
      6.0
          * (32 * (3.0 * 4096 * 14336 * 2 + 4096.0 * 6144 + 4096.0 * 4096 + 4096 * s)
             + 4096 * 32000.0));
  g_autoptr (PlanModel) gemma = plan_model_new ("gemma2-9b", NULL); /* a window shortens nothing */
  ck_assert_double_eq (
      plan_model_flops_per_token (gemma, 8192, 256000),
      6.0
          * (42 * (3.0 * 3584 * 14336 + 3584.0 * 8192 + 4096.0 * 3584 + 4096 * 8192.0)
             + 3584 * 256000.0));
  g_autoptr (PlanModel) deepseek = plan_model_new ("deepseek-v3", NULL);
  const double latent = 1536.0 * (7168 + 128 * 192 + 1) + 512.0 * (7168 + 128 * 256 + 1)
                        + 7168.0 * 64 + 128.0 * 128 * 7168 + s * 128 * 192 / 2 + s * 128 * 128 / 2;
  const double mlp = 3.0 * 7168 * (3 * 18432.0 + 59 * (8 * 2048.0 + 2048));
  ck_assert_double_eq (
      plan_model_flops_per_token (deepseek, 4096, 129280),
      6 * (62 * latent + mlp + 3.0 * 7168 + 2.0 * 7168 * 7168 + 2 * 7168.0 * 129280));
}
END_TEST

/* The gated delta rule, with Megatron-LM's terms: a layer's projections, its convolution, and four
 * products of a head's keys and values per token. */
START_TEST (flops_of_linear_attention)
{
  g_autoptr (PlanModel) model = plan_model_new ("qwen3-next-80b-a3b", NULL);
  g_autoptr (PlanModel) plain = plan_model_new ("qwen3-next-80b-a3b,mtp=0", NULL);
  const double h = 2048, s = 4096, vocab = 151936;
  const double rule = 32.0 * 128 * 128 * 4, conv = 4.0 * (2048 + 2048 + 4096);
  const double linear = h * (2048 + 2048 + 4096 + 4096 + 32 + 32) + conv + rule + 4096 * h;
  const double full = h * (2 * 4096 + 512 + 512) + s * 4096 + 4096 * h;
  const double mlp = 3 * h * (10 * 512 + 512);
  const double flops = 6 * (36 * linear + 12 * full + 48 * mlp + vocab * h);
  ck_assert_double_eq (plan_model_flops_per_token (plain, 4096, 151936), flops);
  /* The prediction module's layer counts as linear by its place, beside a projection, norms and
   * the output layer. */
  ck_assert_double_eq (plan_model_flops_per_token (model, 4096, 151936),
                       flops + 6 * (linear + mlp + 3 * h + 2 * h * h + vocab * h));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-flops");
  TCase *tcase = tcase_create ("model-flops");
  tcase_add_test (tcase, flops_are_those_of_megatron);
  tcase_add_test (tcase, flops_of_every_kind);
  tcase_add_test (tcase, flops_of_linear_attention);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
