-- How what is kept of the log goes: `trim` in meta moves from its head to the cursor, past what still waits.
-- CALL: passed = 0
-- A few at a time: bodies are read with their entries.
local trim = {LIMIT = 200, ROUND = 20}

local function drop(entry)
  retention.lose(entry.log_id, #entry.body)
  -- Items leave the index when they are acknowledged; those of a log never are.
  if call.partition_log_only and entry.item ~= '' and redis.call('HGET', key.index, entry.item) == entry.log_id then
    write_buffer.add('HDEL', key.index, entry.item)
  end
end

-- Whether the first entries, up to `ROUND`, were all passed and others may follow. Those of before `oldest` (ms) go by
-- their age.
local function pass_some(oldest)
  local most = math.min(trim.ROUND, trim.LIMIT - call.trim_passed)
  local found, ended = log_entries.range('(' .. call.partition_trim, call.partition_cursor, most)
  local places, ats = {}, {}
  for i = 1, #found do places[i], ats[i] = found[i].log_id, found[i].at or '' end
  local done = #found > 0 and retention.done(places, ats)
  for i = 1, #found do
    if not retention.over() and positions.split(places[i]) >= oldest then return false end
    call.partition_trim, call.trim_passed = places[i], call.trim_passed + 1
    if done[i] then drop(found[i]) end
  end
  return not ended
end

-- Gives 1 when there is more to do.
function trim.run(oldest)
  if call.partition_kept == 0 then return 0 end
  local more = true
  while more and call.trim_passed < trim.LIMIT and not (call.trim_passed > 0 and budget.over()) do more = pass_some(oldest) end
  write_buffer.flush()
  return more and 1 or 0
end

-- What is too old goes when time is what is asked about.
function trim.aged()
  return trim.run(call.partition_keep_ms > 0 and call.partition_now - call.partition_keep_ms or 0)
end

-- A cheap question, asked after everything that may have kept something.
function trim.excess()
  return retention.over() and trim.run(0) or 0
end
