-- Trims kept entries of the log: `trim` in meta moves from the head to the cursor, past items that still wait.
-- CALL: passed = 0
-- A few at a time: entries are read with their bodies.
local trim = {LIMIT = 200, ROUND = 20}

-- Removes a kept entry.
function trim.drop(entry)
  retention.lose(entry.log_id, #entry.body)
  -- Items leave the index when they are acknowledged, but entries of a log never are.
  if call.partition_options.log_only and entry.item ~= '' and redis.call('HGET', key.index, entry.item) == entry.log_id then
    write_buffer.add('HDEL', key.index, entry.item)
  end
end

-- Passes the first entries, up to `ROUND`; returns whether more may follow. Entries older than `oldest` (ms) are too old.
local function pass_some(oldest)
  local most = math.min(trim.ROUND, trim.LIMIT - call.trim_passed)
  local found, ended = log_entries.range('(' .. call.partition_trim, call.partition_cursor, most)
  local places, ats = {}, {}
  for i = 1, #found do places[i], ats[i] = found[i].log_id, found[i].at or '' end
  local done = #found > 0 and retention.find_finished(places, ats)
  for i = 1, #found do
    if not retention.over() and positions.split(places[i]) >= oldest then return false end
    partition.move_trim(places[i])
    call.trim_passed = call.trim_passed + 1
    if done[i] then trim.drop(found[i]) end
  end
  return not ended
end

-- Returns 1 when there is more to do.
function trim.run(oldest)
  if call.partition_kept == 0 then return 0 end
  local more = true
  while more and call.trim_passed < trim.LIMIT and not (call.trim_passed > 0 and budget.over()) do more = pass_some(oldest) end
  write_buffer.flush()
  return more and 1 or 0
end

-- Trims by age.
function trim.by_age()
  return trim.run(call.partition_options.keep_ms > 0 and call.partition_now - call.partition_options.keep_ms or 0)
end

-- Trims by count and size. The test is cheap, and comes after everything that may have kept an entry.
function trim.excess()
  return retention.over() and trim.run(0) or 0
end
