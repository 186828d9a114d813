-- Who runs the script: a frontend is named. A caller with the empty name cannot send; `-` cannot send and knows of no live frontend.
-- CALL: sends = arg.frontend ~= '' and arg.frontend ~= '-', alone = arg.frontend == '-'
local caller = {}
