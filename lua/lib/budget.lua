-- How much one call may do in all, whatever its rows ask for (guarantee 6). Work is counted where it is done: a unit is about 10 µs.
-- What is left over goes on with the next call, and others get their turn between.
-- CALL: spent = 0
-- A lock that is read, listed, made or ended, an entry that is read or written, and each `PAGE` bytes of its payload.
local budget = {WORK = 1000, PAGE = 4096}

-- Whether nothing more is to be begun.
function budget.over()
  return call.budget_spent >= budget.WORK
end

-- Whether what has begun is to stop, too: a row may go on for as much again.
function budget.exhausted()
  return call.budget_spent >= 2 * budget.WORK
end

-- Carries rows out in their order until the budget is spent, the first one always: rows without an answer come again.
function budget.each(rows, act)
  local results = {}
  for i, row in ipairs(rows) do
    if i > 1 and budget.over() then break end
    results[i] = act(row)
  end
  return results
end
