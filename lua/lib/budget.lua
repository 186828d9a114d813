-- Bounds the work of one call, whatever its rows ask for (guarantee 6). Functions count their work in units of about 10 µs. The next call
-- does the rest, and other clients are served in between.
-- CALL: spent = 0, skipped = 0
-- One unit: a lock that is read, listed, made or ended; an entry that is read or written; each `PAGE` bytes of its payload.
-- `SKIPS`: items that one call passes over at most.
local budget = {WORK = 1000, PAGE = 4096, SKIPS = 500}

-- Counts work, in units.
function budget.spend(units)
  call.budget_spent = call.budget_spent + units
end

-- Counts items that the queue has reached and passes over; one that goes out after all is taken back by -1.
function budget.skip(count)
  call.budget_skipped = call.budget_skipped + count
end

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
