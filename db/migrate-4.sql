-- Takes a store from version 4 to version 5. Never changed once it is released.
--
-- Evaluations are kept with the steps that they follow.
ALTER TABLE run_step ADD COLUMN eval_loss REAL;
