#!lua flags=allow-oom
-- Erase what belongs to an account in a partition, a bounded part per call: entries of the log that it published, whatever became of them,
-- then the ends of items that it asked about, then journal records of its attempts, or that name it as the publisher. What is held goes
-- with `held`, else it is counted; so is what is on its way to another node, where it will be found. With `looks` all is counted and stays.
-- `past` is where the call before has come to, and `come` where this one has: a list and a place in it, empty at the end.
-- ARGV: now revision frontend number retry jid held looks past
-- RETURNS: ok(come items held leaving ends records) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local CHUNK, FEW = 200, 20
local list, place = string.match(arg.past, '^(%a+) (%S+)$')
local counts = {items = 0, held = 0, leaving = 0, ends = 0, records = 0}

local function is_theirs(jid)
  return jids.bare(jid) == arg.jid
end

local function count(what)
  counts[what] = counts[what] + 1
  return arg.looks ~= '1'
end

-- A version of an item has the item's position while it is the present one, or waits to be.
local function position_of(entry)
  local log_id, at = entry.log_id, entry.at
  if at and (redis.call('HGET', key.replaced, at) == log_id or redis.call('HGET', key.successors, at) == log_id) then return at end
  return log_id
end

local function erase(log_id)
  -- It may have gone with an earlier version of the same item.
  local entry = log_entries.get(log_id)
  local position = entry and position_of(entry)
  local first = entry and position ~= log_id and log_entries.get(position)
  if not entry or first and first.by == arg.jid then return end
  local flight = inflight.get_many({position})[1]
  if flight and arg.held ~= '1' then
    count('held')
  elseif flight then
    if count('items') then cancelling.end_lock(flight) end
  elseif redis.call('HEXISTS', key.outbox_items, position) == 1 then
    count('leaving')
  else
    local waiting = not call.partition_options.log_only and items.waiting(position)
    if waiting then
      if count('items') then cancelling.drop(position, items.name(position, waiting), waiting) end
    elseif call.partition_options.log_only or retention.find_finished({log_id}, {entry.at or ''})[1] then
      if count('items') then trim.drop(entry) end
    end
  end
end

local function erase_entries()
  local found, ended = log_entries.range('(' .. place, '+', CHUNK)
  for i, entry in ipairs(found) do
    if i > 1 and budget.over() then return 'log ' .. place end
    place = entry.log_id
    if entry.by == arg.jid then
      -- What it looks up may have been changed by the entry before.
      write_buffer.flush()
      erase(entry.log_id)
    end
  end
  return ended and 'ends 0' or 'log ' .. place
end

local function erase_ends()
  local found = redis.call('HSCAN', key.results, place, 'COUNT', FEW)
  for i = 1, #found[2], 2 do
    if is_theirs(outcome_record.jid(found[2][i + 1])) and count('ends') then outcomes.remove({found[2][i]}) end
  end
  return found[1] == '0' and 'journal 0-0' or 'ends ' .. found[1]
end

local function erase_records()
  local found = redis.call('XRANGE', key.journal, '(' .. place, '+', 'COUNT', CHUNK)
  for _, record in ipairs(found) do
    local told = {}
    for i = 1, #record[2], 2 do told[record[2][i]] = record[2][i + 1] end
    local theirs = told.lock and is_theirs(inflight.read('', told.lock).jid) or told.publisher == arg.jid
    if theirs and count('records') then redis.call('XDEL', key.journal, record[1]) end
    place = record[1]
  end
  return #found == CHUNK and 'journal ' .. place or ''
end

local come = list == 'log' and erase_entries() or list == 'ends' and erase_ends() or erase_records()
return respond.make({come, counts.items, counts.held, counts.leaving, counts.ends, counts.records}, call.lock_end_freed)
