#!lua flags=allow-oom
-- Add subscriptions, or change their options. With `must` the subscription has to exist, and an empty `qos` or `batch` keeps the old
-- one, so that a log reader reads on. With `several` a JID may have more than one subscription, and gets a new one. A partition owner that subscribes
-- for shared use loses its partition. In a node of several partitions, and in a collection, only the coordinator runs this. It returns
-- the number of a registration if the other partitions must learn of the change, else `0`; an empty `credit` only asks for a
-- registration. A `selector` of `=` keeps the old one.
-- ARGV: now revision frontend sent number retry max_subscribers | subid jid credit qos batch must lease scope named several selector
-- RETURNS: ok stale gone deleted | ok not-subscribed too-many-subscriptions options-invalid lease-over subid-required subid-invalid
local refusal = partition.load()
if refusal then return refusal end

-- Returns the subid that a row means, or nil and the refusal.
local function meant(row)
  if row.must == '1' then return subscription_ids.choose(row.subid, row.named) end
  local those, free = subscription_ids.existing(row.subid)
  if row.several == '' then return those[1] or row.subid end
  if #those == 0 then return row.subid end
  call.partition_multi = call.partition_multi or partition.turn_on('multi')
  if #free == 0 then free = select(2, subscription_ids.existing(row.subid)) end
  if #free == 0 then return nil, {'too-many-subscriptions'} end
  return free[1]
end

local function read_on(row, subscriber)
  if row.qos ~= '' and row.qos ~= 'unacknowledged' then return {'options-invalid'} end
  if selectors.is_requested(row) then return {'options-invalid', 'selector'} end
  subscriber.limit = tonumber(row.credit) or subscriber.limit
  subscriptions.put(subscriber)
  local reader = log_readers.get(row.subid)
  if reader then reader_window.save(reader, reader.position) end
  return {'ok', subscriber.limit, subscriber.qos, '0', subscriber.jid, subscription_expiry.put(row.subid, row.lease), row.subid}
end

-- The other partitions must learn of a new subscription, whose locks from before are unknown and which may use nothing until they are
-- known; of another selector or quality of service; and of less credit, which makes grants on their way void. Returns the number of the
-- registration, and the scope.
local function register(row, before, subscriber, owned)
  local known = usage.read(row.subid)
  if row.scope ~= '' then known.scope = row.scope end
  local shown = known.scope ~= '' and known.scope or nil
  -- What a pull subscription may hold is decided when it receives.
  if subscriptions.pulls(subscriber) then
    usage.write(row.subid, known)
    return '0', shown
  end
  local chooses = row.selector ~= '=' and (selectors.line(row.subid) or '') ~= row.selector
  local new = not before.jid or owned or known.registering ~= '0'
  local told = new or chooses or row.credit == '' or row.scope ~= '' or subscriber.qos ~= before.qos
    or subscriber.batch ~= before.batch or subscriber.limit < before.limit
  local registration = told and string.format('%d', partition.next_number()) or '0'
  if new then known.registering = registration end
  usage.write(row.subid, known)
  if told then
    grants.take(row.subid, registration)
    -- A grant on its way is void: nothing of it will be used.
    ledger.take_own_grant(row.subid, tonumber(registration), math.huge)
  end
  return registration, shown
end

-- An owner's credit ends with its ownership: a former owner begins anew.
local function work(row, subscriber, owned)
  local before, total = subscriber or {}, tonumber(row.credit)
  local batch = row.batch ~= '' and row.batch or before.batch
  subscriber = {subid = row.subid, jid = before.jid or row.jid, limit = total or before.limit,
    bounces = total and 0 or before.bounces, qos = row.qos ~= '' and row.qos or before.qos, batch = batch ~= '1' and batch or nil}
  local registration, scope = '0', nil
  if call.partition_several then registration, scope = register(row, before, subscriber, owned) end
  subscribing.put(subscriber, not before.jid)
  if row.selector ~= '=' then skipped_items.set_selector(row.subid, row.selector) end
  lock_end.touch(row.subid)
  local line = selectors.line(row.subid)
  return {'ok', subscriber.limit, subscriptions.sending(subscriber), registration, subscriber.jid, subscription_expiry.put(row.subid, row.lease), row.subid,
    scope or line and '', line}
end

local results = {}
for i, row in ipairs(rows) do
  local subid, refused = meant(row)
  row.subid = subid or row.subid
  local known, owns = subid and subscriptions.get(subid), partition_owner.is(subid)
  if refused then
    results[i] = refused
  -- The coordinator does not know an owner's credit: the owned partition keeps it.
  elseif row.must == '1' and owns and call.partition_several then
    results[i] = {'not-subscribed'}
  elseif not known and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    results[i] = {'too-many-subscriptions'}
  elseif selectors.is_requested(row) and owns and row.must == '1' then
    results[i] = {'options-invalid', 'selector'}
  elseif selectors.is_requested(row) and not selectors.room(row.subid) then
    results[i] = {'too-many-subscriptions', 'selector'}
  elseif subscription_expiry.would_be_over(row.lease) then
    results[i] = {'lease-over'}
  elseif row.must == '1' and subscriptions.reads(known) then
    results[i] = read_on(row, known)
  else
    if owns and row.must == '1' then partition_owner.renew_when_seen(row.subid .. ' ' .. row.subid) else ownership_loss.end_of(row.subid, false) end
    results[i] = work(row, subscribing.find(row.subid), owns)
  end
end
local reply = respond.make(results, dispatch.LIMIT)
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
