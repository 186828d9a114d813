-- The process that made the call. A frontend has a name. The empty name cannot send; `-` cannot send and knows of no live frontend.
-- CALL: sends = arg.frontend ~= '' and arg.frontend ~= '-', alone = arg.frontend == '-'
local caller = {}
