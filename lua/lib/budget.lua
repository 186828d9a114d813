-- Bounds the work of one call, whatever its rows ask for (guarantee 6). Functions count their work in units of about 10 µs. The next call
-- does the rest, and other clients are served in between.
-- CALL: spent = 0
-- One unit: a lock that is read, listed, made or ended; an entry that is read or written; each `PAGE` bytes of its payload.
local budget = {WORK = 1000, PAGE = 4096}

-- Whether to begin nothing more.
function budget.over()
  return call.budget_spent >= budget.WORK
end

-- Whether to stop even within a row, which may use as much again.
function budget.exhausted()
  return call.budget_spent >= 2 * budget.WORK
end

-- Runs rows in order until the budget is spent, at least the first. The caller sends rows without an answer again.
function budget.each(rows, act)
  local results = {}
  for i, row in ipairs(rows) do
    if i > 1 and budget.over() then break end
    results[i] = act(row)
  end
  return results
end
