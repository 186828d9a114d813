#!lua flags=allow-oom
-- List what pull subscribers hold, oldest locks first: those after the token `after`, at most `limit` each and `max_bytes` of payload in
-- all. A `lease`, which only the first partition knows, must not have ended, and is extended by so many ms; `0` leaves it as it is.
-- Returns the end of the lease, the items, whether there are more, the last token of all (unchanged, nothing was handed out since), and 1
-- if the subscriber was absent and gets items from now on. With `comes` 1 the subscriber fetches: it
-- gets items, and the lock time of an item begins with its first fetch. Without, the caller only looks. With `one` 1 it gets one item at
-- most, the next.
-- ARGV: now revision number limit max_bytes | subid lease after comes one
-- RETURNS: ok stale gone deleted | ok lease-over
local refusal = partition.load()
if refusal then return refusal end
-- `back` has the subscribers that returned, for the coordinators of their credit.
-- `given` counts the items that were fetched for the first time; `waits` has how long those at their first attempt waited, in ms.
local bytes, due, given, waits, more_at_once, back = 0, 0, 0, {}, 0, {}

-- Returns the deadline of a lock.
local function deadline(flight, entry, comes)
  if not (comes and inflight.is_unfetched(flight)) then
    return tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0)
  end
  inflight.mark_fetched(flight, call.partition_stamp)
  redis.call('ZADD', key.lock_deadlines, call.partition_deadline_text, flight.position)
  given = given + 1
  if flight.attempt == '1' then
    local published = positions.split(flight.position)
    waits[#waits + 1] = call.partition_now - math.max(published, scheduling.of(entry).after)
  end
  return call.partition_deadline
end

local function describe(flight, entry, comes)
  local attempt = tonumber(flight.attempt)
  local tries = attempt_history.count(flight.position, attempt)
  return {flight.item, tonumber(flight.token), tries, deadline(flight, entry, comes), entry.by, entry.body, entry.key,
    tonumber((positions.split(entry.log_id))), attempt - tries, outcomes.are_wanted(flight.position) and 1 or 0}
end

local function limit(row) return row.one == '1' and 1 or tonumber(arg.limit) end

local function held(row, subids)
  local places, found, after = {}, {}, tonumber(row.after)
  for _, subid in ipairs(subids) do
    for _, position in ipairs(held_locks.after(subid, after, limit(row) + 1)) do places[#places + 1] = position end
  end
  for _, flight in ipairs(inflight.get_many(places)) do
    if flight then
      flight.number = tonumber(flight.token)
      found[#found + 1] = flight
    end
  end
  call.budget_spent = call.budget_spent + 0.6 * #found
  table.sort(found, function(a, b) return a.number < b.number end)
  return found
end

-- Renews the lease of a subscription that asks for it; returns whether the subscription lasts.
local function renew_lease(row)
  if row.lease == '' or arg.number ~= '0' then return true end
  local subscriber = subscriptions.get(row.subid)
  if not subscriber or not subscriptions.pulls(subscriber) or subscription_expiry.has_ended(row.subid) then return false end
  if row.lease ~= '0' then subscription_expiry.put(row.subid, '+' .. row.lease) end
  due = subscription_expiry.next(0)
  return true
end

-- Returns 1 if a subscription was absent and has returned.
local function note_return(subids)
  local any = 0
  for i, line in ipairs(redis.call('HMGET', key.subscribers, unpack(subids))) do
    local subscriber = line and subscriptions.read(subids[i], line)
    if subscriber and subscriptions.absent(subscriber) then
      subscriptions.reset_bounces(subscriber)
      credit.update_turn(subids[i])
      any, more_at_once = 1, 1
      back[#back + 1] = {subids[i], credit.lock_count(subids[i]), grants.last(subids[i]), subscriber.pool or '', 0}
    end
  end
  return any
end

local results = budget.each(rows, function(row)
  if not renew_lease(row) then return {'lease-over'} end
  local found, more, subids = {}, 0, subscription_ids.all(row.subid)
  -- A caller whose `after` is beyond the last token fetches nothing.
  local comes = row.comes == '1' and tonumber(row.after) <= call.partition_token
  for _, flight in ipairs(held(row, subids)) do
    local entry = bytes < tonumber(arg.max_bytes) and #found < limit(row) and log_entries.get(flight.log_id)
    if not entry then
      more = 1
      break
    end
    bytes = bytes + #entry.body
    found[#found + 1] = describe(flight, entry, comes)
  end
  return {'ok', subscription_expiry.of(row.subid), found, more, call.partition_token, comes and note_return(subids) or 0}
end)
local told_of = {}
if back[1] and (call.partition_several or call.partition_pools) then
  -- Nothing of what is wanted here: coordinators know that.
  told_of = {partition.next_number(), false, '', 'A', back, '', {}}
  partition.save()
end
if given > 0 then notices.tell({'fetched', given, waits}) end
return respond.results(results, due, more_at_once, {credit = told_of})
