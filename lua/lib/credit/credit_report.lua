-- What a script reports about credit that several partitions share; the frontend carries it to the coordinators. It says whether items
-- here wait for credit, what subscribers hold here whose credit is elsewhere, and what this partition grants as a coordinator.
-- CALL: unknown = {}, unused = {}
-- `unused` are those to whom a grant was of no use in this script.
local credit_report = {MOST = 200, LOOKED_AT = 32}

-- A partition that does not know a subscriber for whom it was granted credit says so: 1 in the last column, as of one that is
-- absent. 2 there says that a grant was of no use.
function credit_report.refuse(subid, pool, number)
  local held = partition_owner.is(subid) and 0 or credit.lock_count(subid)
  call.credit_report_unknown[#call.credit_report_unknown + 1] = {subid, held, tonumber(number), pool, 1}
end

-- Who had the items before that came back and are next: they go to others first.
local function earlier()
  local places = redis.call('ZRANGE', key.ready, 0, credit_report.LOOKED_AT - 1)
  if #places == 0 then return '' end
  local names = redis.call('HMGET', key.history, unpack(places))
  for i, line in ipairs(names) do names[i] = line and string.match(line, '^%S+ (%d+)') or '-' end
  return ' ' .. table.concat(names, ' ')
end

-- How much credit is wanted here, and of whom. Nobody's is while the partition is owned or paused.
local function demand()
  if partition_owner.get() or call.partition_paused then return 0, 'A' end
  local whom = {}
  for _, each in ipairs(call.matching_whom or {}) do
    if each[2] ~= '' or call.partition_several then whom[#whom + 1] = each end
  end
  local waits = call.partition_cursor ~= call.partition_tail or redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and scheduling.has_ranks(0, scheduling.LAST)
  -- In a node of one partition, turns are of those who have their credit here.
  local served = not call.partition_several and redis.call('EXISTS', key.ready_subscribers) == 1
  if #whom == 0 and (call.partition_selects or not waits or served) then return 0, 'A' end
  local stored = redis.call('XLEN', key.log) - call.partition_kept - redis.call('HLEN', key.inflight)
  local wanted = math.min(credit_report.MOST, math.max(1, stored))
  if #whom > 0 then return wanted, whom end
  return wanted, 'A' .. earlier()
end

-- What subscribers hold here whose locks have begun or ended in this script; what the coordinator holds itself is settled at once.
local function held_here()
  local found, unused = call.credit_report_unknown, call.credit_report_unused
  for _, subscriber in ipairs(call.dispatch_granted) do unused[subscriber.subid] = subscriber.held == 0 or nil end
  for subid in pairs(call.lock_end_touched) do
    local subscriber, last = subscriptions.get(subid), grants.last(subid)
    local pool = subscriber and subscriber.pool or call.lock_end_pools[subid]
    local shut = subscriber and subscriptions.absent(subscriber) and 1 or unused[subid] and 2 or 0
    if pool then
      found[#found + 1] = {subid, credit.lock_count(subid), last, pool, shut}
    elseif credit.coordinates() then
      ledger.take_own_grant(subid, last, unused[subid])
      credit.update_turn(subid)
    elseif call.partition_several and not partition_owner.is(subid) then
      found[#found + 1] = {subid, credit.lock_count(subid), last, '', shut}
    end
  end
  return found
end

local function said(whom, pool)
  local names = {}
  for _, each in ipairs(whom) do
    if each[2] == pool then names[#names + 1] = each[1] end
  end
  return names
end

-- Since which report credit has been wanted without a break: whom it was told before then may have forgotten. Empty when none is.
local function since(wanted, version)
  if wanted == 0 and call.partition_wants_since then redis.call('HDEL', key.meta, 'wants_since') end
  if wanted == 0 then return '' end
  if not call.partition_wants_since then
    call.partition_wants_since = string.format('%d', version)
    redis.call('HSET', key.meta, 'wants_since', call.partition_wants_since)
  end
  return call.partition_wants_since
end

-- Gives an empty list in a partition that shares no credit; else the version of the report, how much is wanted, since when, of whom
-- (`A` and who is avoided, or rows of subid and pool), the holdings, the pools that have subscribers here if something is wanted, and
-- the grants made.
function credit_report.make()
  local shares = call.partition_several or call.partition_pools or next(call.lock_end_pools)
  if not shares and #call.credit_report_unknown == 0 then return {} end
  local wanted, whom = demand()
  local held = held_here()
  -- Who comes for items takes a new token for a sign of something new, so none is taken without need.
  local version = #held > 0 and partition.next_number() or math.max(call.partition_token, call.partition_micros)
  if credit.coordinates() then
    local names = type(whom) == 'table' and said(whom, '')
    local own = (names and #names == 0) and 0 or wanted
    coordinator.want(arg.number, version, own, names and 'W ' .. table.concat(names, ' ') or whom)
    coordinator.run()
  end
  return {version, wanted, since(wanted, version), whom, held, wanted > 0 and call.partition_pools or '', call.coordinator_made}
end
